"""The processes of one run, each with a device: messages between them, and exchanges of device arrays."""
