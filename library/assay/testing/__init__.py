"""Stand-ins for what cannot be in a test: public, so that tests of users' own setups can use them too."""
