"""What holds the scripts to the store in memory (simulate/memory), which is their specification."""
