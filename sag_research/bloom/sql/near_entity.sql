select entity_id from entities
order by jaro_winkler_similarity(lower(name), lower($entity)) desc, entity_id
limit 3
