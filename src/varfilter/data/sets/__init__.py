"""The data sets that have a name: where they come from, how they are checked and read."""
