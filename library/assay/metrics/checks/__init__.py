"""The checks of a dataset's cases, and the reasons for checks that are not made."""
