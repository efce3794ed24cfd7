"""The user's own tables: any columns of numbers, in time, as a data set and its schema."""
