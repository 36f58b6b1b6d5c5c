"""Teams and tokens of a shared installation.

verifier        identifies the caller of a token, and caches the result for a moment
oidc            identifies the caller of a JSON Web Token: `issuers` to accept, `key_sets` with their keys
scopes          allowed team names, and the scope of a team's calls
admin_service   AdminService on the wire
serving         the parts of a server with identified callers
bootstrap       the first token, created at the database
"""
