//! Replay, over volumes in memory.
