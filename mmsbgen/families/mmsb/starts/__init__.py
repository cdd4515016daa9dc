"""The kernel that finds starts of a chain: moves of vertices between communities."""
