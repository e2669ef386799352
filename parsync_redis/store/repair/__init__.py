"""Damage: how it is found, set aside and mended."""
