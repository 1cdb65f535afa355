"""Settings: one frozen dataclass per algorithm is the source of its options, its files and its documentation."""

from envfleet.settings.declaration import Settings, differences, reference_table, setting
from envfleet.settings.files import read_settings_file

__all__ = ["Settings", "differences", "read_settings_file", "reference_table", "setting"]
