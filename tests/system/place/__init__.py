"""Placement: schedulers beside each other, needs, devices, look-ahead."""
