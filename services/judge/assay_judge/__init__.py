"""The judge service.

Unfinished: the contract stands in `protos/assay/v1/judge.proto`; no server implements it yet. A spec
that asks for a judge is refused with a sentence.
"""
