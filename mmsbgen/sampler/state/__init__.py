"""The state on the device, its memory and its clock."""
