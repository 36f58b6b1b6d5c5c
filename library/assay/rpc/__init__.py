"""gRPC as Assay uses it: the only place that makes servers and channels.

options         settings of servers and channels, and the channel arguments made of them
server          a server with health, reflection and its interceptor, and its life from start to stop
interceptors    what stands between the wire and a handler: admission, access, decoding, time limits, failures
early_refusals  further calls of a team that was refused a moment ago
access          whose token a call has, the right of its method, the teams that its messages name
admission       how many calls run at once, and how many of them one client may have
request_stream  a client's stream: decoded, and not waited for without end
channel         a channel with deadlines, retries and keepalive
methods         the table of methods: what each needs of its server, and whether it may be retried
streams         answering a stream of requests, several at once
status          domain errors to status codes and back
"""
