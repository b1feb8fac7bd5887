//! The engine model in real time behind vLLM's own interfaces: OpenAI HTTP, /metrics, KV events over ZeroMQ.
