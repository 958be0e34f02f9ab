select coalesce(max(seq), 0) as seq from events
