"""Settings: one frozen dataclass per algorithm defines its flags, file keys and documentation."""

from envfleet.settings.declaration import Settings, differences, grouped, reference_table, setting
from envfleet.settings.declared import declared_settings, own_names, split_own
from envfleet.settings.files import read_settings_file
from envfleet.settings.layers import layered

__all__ = [
    "Settings",
    "declared_settings",
    "differences",
    "grouped",
    "layered",
    "own_names",
    "read_settings_file",
    "reference_table",
    "setting",
    "split_own",
]
