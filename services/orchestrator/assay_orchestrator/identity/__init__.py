"""Teams and tokens of an installation that teams share.

verifier        whose token a text is, remembered for a moment
oidc            whose JSON Web Token a text is: `issuers` whose tokens are taken, `key_sets` with their keys
scopes          which names teams may have, and what the calls of a team reach
admin_service   AdminService on the wire
serving         what a server needs whose callers have identities
bootstrap       the first token, made at the database
"""
