//! The tool a person holds: replay a trace, report, explain a decision.
