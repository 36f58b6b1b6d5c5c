"""gRPC as Assay uses it: the only place that makes servers and channels.

options         settings of servers and channels, and the channel arguments made of them
server          a server with health, reflection and its interceptor, from start to stop
interceptors    admission, access, decoding, time limits and failures of every call
early_refusals  cheap refusals for a team that was just refused
access          authentication, rights and the teams that messages name
admission       limits on concurrent calls, in total, per client and per team
request_stream  a client's stream, decoded and with a limit on silence
channel         a channel with deadlines, retries and keepalive
methods         the table of methods: slots, rights, audit, retries
streams         concurrent answers to a stream of requests
status          domain errors as status codes, and back
"""
