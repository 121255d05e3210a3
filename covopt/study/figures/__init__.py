"""The figures of the papers on depth, on data that covopt makes itself: one file for each figure."""
