"""Public stand-ins for services that a test cannot use, also for tests of users' own setups."""
