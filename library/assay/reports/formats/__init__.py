"""One file for each format of a report; each has `write(report, folder, options)`."""
