"""The callers of a shared installation, and their rights.

tokens         the text of an API token: made, checked, hashed
rights         rights, and the roles that have them
caller         the identity of the present call
authenticator  what a server asks whose token a text is
"""
