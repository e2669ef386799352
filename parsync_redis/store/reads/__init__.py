"""Reads of the state by people and processes; no script decides here."""
