"""Report formats, one module each, with a function `write(report, folder, options)`."""
