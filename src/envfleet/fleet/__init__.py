"""Many environments as one: groups on workers at places."""
