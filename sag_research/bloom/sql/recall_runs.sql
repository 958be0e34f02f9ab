-- Facts of runs, in the order of the log.
select run_id, seq, task_id, outcome, n_steps, parent_id, copy_of, digest,
       hidden or kind = 'extraction' as hidden
from runs
where run_id <> $workspace and ($runs::varchar[] is null or list_contains($runs::varchar[], run_id))
order by seq
