select count(*) as n from runs where run_id <> $workspace and not hidden
