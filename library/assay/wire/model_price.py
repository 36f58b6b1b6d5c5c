"""Conversion of model prices to protobuf messages and back."""

from __future__ import annotations

from assay.model.model_price import ModelPrice
from assay.v1 import agent_pb2
from assay.wire.converter import Converter

PRICE = Converter(ModelPrice, agent_pb2.ModelPrice)
