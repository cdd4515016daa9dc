"""Rendered source as text: its layout, and the digest of its tokens."""
