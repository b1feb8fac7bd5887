//! A model of one vLLM engine: batching, prefix cache, H20 step time. Pure, virtual time.
