"""The commands of the lab: `parsync bench`, `parsync simulate`, `parsync whatif`."""
