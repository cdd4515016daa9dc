"""Detections that several ranks share."""
