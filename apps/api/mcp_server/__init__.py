"""The MCP server: operations of the API as tools for coding agents."""
