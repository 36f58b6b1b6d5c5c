"""comparison.html: a comparison on one page, without any request to the network."""
