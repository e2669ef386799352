"""What holds the scripts to the store in memory (store/reference), which is their specification."""
