-- The repository root of each run: what stands before a relative path in an absolute one. Folders
-- of the system are none, and a bare file name alone proves nothing.
with file as (
    select distinct run_id, name, split_part(name, '/', -1) as base
    from mentions
    where kind = 'File'
),
vote as (
    select a.run_id, left(a.name, length(a.name) - length(r.name) - 1) as root, r.name
    from file a
    join file r on r.run_id = a.run_id and r.base = a.base
    where starts_with(a.name, '/') and not starts_with(r.name, '/')
      and ends_with(a.name, '/' || r.name)
),
counted as (
    select run_id, root, count(distinct name) as n, bool_or(contains(name, '/')) as deep
    from vote
    where root <> '' and not regexp_matches(root, '^/(usr|opt|lib|lib64|bin|etc|var|tmp|proc|rustc)(/|$)')
    group by run_id, root
)
select run_id, root, n
from counted
where n > 1 or deep
qualify row_number() over (partition by run_id order by n desc, length(root), root) = 1
order by run_id
