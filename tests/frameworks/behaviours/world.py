"""The beginning of every agent's module: what its tools do, in Python that knows no framework."""

from __future__ import annotations

WORLD = '''
import asyncio
import sys
from pathlib import Path

CITY = {"answer": "Lima", "people": 10}


def log(line):
    """Write what a test reads at the end."""
    with Path(__file__).with_name("log").open("a") as file:
        print(line, file=file)


def track(parcel: int) -> str:
    """Return where a parcel is."""
    if parcel not in (7, 8):
        raise LookupError(f"no parcel {parcel}")
    return {7: "Lima", 8: "Quito"}[parcel]


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def quote(city: str) -> str:
    """Return a price."""
    return f"{city}: 5 EUR"


async def hang() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


MCP_SERVER = """
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

log = Path(sys.argv[1])
server = MCPServer("sums")

@server.tool()
def add(a: int, b: int) -> int:
    "Add."
    if a > 9:
        raise ValueError("too large")
    return a + b

with log.open("a") as file:
    print("opened", file=file)
server.run()
with log.open("a") as file:
    print("closed", file=file)
"""
MCP_COMMAND = [sys.executable, "-c", MCP_SERVER, str(Path(__file__).with_name("log"))]
'''
"""`track`, `pay`, `quote` and `hang` are plain functions. `MCP_COMMAND` starts an MCP server with a tool `add`."""
