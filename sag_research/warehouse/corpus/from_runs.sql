-- The runs of a corpus in the order of the log, and why a run is not in it.
SELECT run_id, task_id, dataset, repo, agent, model, outcome,
       CASE outcome WHEN 'failure' THEN 1 WHEN 'success' THEN 0 END AS failed,
       exit_status, n_steps, tokens_in, tokens_out,
       CASE WHEN parent_id IS NOT NULL THEN 'fork'
            WHEN kind = 'extraction' THEN 'extraction'
            WHEN copy_of IS NOT NULL THEN 'copy'
            WHEN hidden THEN 'hidden'
            WHEN n_steps = 0 THEN 'no steps' END AS left_out
FROM (SELECT * FROM runs WHERE ({where}))
ORDER BY seq
