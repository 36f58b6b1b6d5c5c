"""The callers of a shared installation, and their rights.

tokens         the text of API tokens: created, checked, hashed
rights         rights, and the roles that have them
caller         the identity of the current call
authenticator  the protocol that resolves tokens to callers
"""
