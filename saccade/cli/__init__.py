"""The `saccade` command: parse, call, print. Nothing else imports it; torch is imported when a command needs it."""
