-- A shop that lends films, in the shape of Pagila: an enum, a domain, lists, full text, triggers,
-- partitions, functions, views with aggregates, and a circle of two foreign keys.

CREATE TYPE mpaa_rating AS ENUM ('G', 'PG', 'PG-13', 'R', 'NC-17');
CREATE DOMAIN year AS integer CHECK (VALUE >= 1901 AND VALUE <= 2155);

CREATE FUNCTION last_updated() RETURNS trigger LANGUAGE plpgsql
    AS $$BEGIN NEW.last_update = CURRENT_TIMESTAMP; RETURN NEW; END$$;
CREATE FUNCTION last_day(timestamptz) RETURNS date LANGUAGE sql STABLE
    AS $$SELECT (date_trunc('month', $1) + interval '1 month - 1 day')::date$$;
CREATE AGGREGATE group_concat(text) (SFUNC = textcat, STYPE = text);

CREATE TABLE actor (
    actor_id serial PRIMARY KEY,
    first_name text NOT NULL,
    last_name text NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE category (
    category_id serial PRIMARY KEY,
    name text NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE country (
    country_id serial PRIMARY KEY,
    country text NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE city (
    city_id serial PRIMARY KEY,
    city text NOT NULL,
    country_id integer NOT NULL REFERENCES country ON UPDATE CASCADE ON DELETE RESTRICT,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE address (
    address_id serial PRIMARY KEY,
    address text NOT NULL,
    address2 text,
    district text NOT NULL,
    city_id integer NOT NULL REFERENCES city ON UPDATE CASCADE ON DELETE RESTRICT,
    postal_code text,
    phone text NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE language (
    language_id serial PRIMARY KEY,
    name character(20) NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE film (
    film_id serial PRIMARY KEY,
    title text NOT NULL,
    description text,
    release_year year,
    language_id integer NOT NULL REFERENCES language ON UPDATE CASCADE ON DELETE RESTRICT,
    original_language_id integer REFERENCES language ON UPDATE CASCADE ON DELETE RESTRICT,
    rental_duration smallint NOT NULL DEFAULT 3,
    rental_rate numeric(4, 2) NOT NULL DEFAULT 4.99,
    length smallint,
    replacement_cost numeric(5, 2) NOT NULL DEFAULT 19.99,
    rating mpaa_rating DEFAULT 'G',
    last_update timestamptz NOT NULL DEFAULT now(),
    special_features text[],
    fulltext tsvector NOT NULL
);
CREATE INDEX film_fulltext_idx ON film USING gist (fulltext);
CREATE TABLE film_actor (
    actor_id integer NOT NULL REFERENCES actor ON UPDATE CASCADE ON DELETE RESTRICT,
    film_id integer NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE RESTRICT,
    last_update timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (actor_id, film_id)
);
CREATE TABLE film_category (
    film_id integer NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE RESTRICT,
    category_id integer NOT NULL REFERENCES category ON UPDATE CASCADE ON DELETE RESTRICT,
    last_update timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (film_id, category_id)
);
CREATE TABLE store (
    store_id serial PRIMARY KEY,
    manager_staff_id integer NOT NULL,
    address_id integer NOT NULL REFERENCES address,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX idx_unq_manager_staff_id ON store (manager_staff_id);
CREATE TABLE staff (
    staff_id serial PRIMARY KEY,
    first_name text NOT NULL,
    last_name text NOT NULL,
    address_id integer NOT NULL REFERENCES address,
    email text,
    store_id integer NOT NULL REFERENCES store,
    active boolean NOT NULL DEFAULT true,
    username text NOT NULL,
    last_update timestamptz NOT NULL DEFAULT now(),
    picture bytea
);
ALTER TABLE store ADD FOREIGN KEY (manager_staff_id) REFERENCES staff DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE customer (
    customer_id serial PRIMARY KEY,
    store_id integer NOT NULL REFERENCES store,
    first_name text NOT NULL,
    last_name text NOT NULL,
    email text,
    address_id integer NOT NULL REFERENCES address,
    activebool boolean NOT NULL DEFAULT true,
    create_date date NOT NULL DEFAULT CURRENT_DATE,
    last_update timestamptz DEFAULT now(),
    active integer
);
-- Shelves are our own: a foreign key of two columns, as other shops have it.
CREATE TABLE shelf (
    store_id integer NOT NULL REFERENCES store,
    code text NOT NULL,
    height numeric(4, 2),
    PRIMARY KEY (store_id, code)
);
CREATE TABLE inventory (
    inventory_id serial PRIMARY KEY,
    film_id integer NOT NULL REFERENCES film ON UPDATE CASCADE ON DELETE RESTRICT,
    store_id integer NOT NULL REFERENCES store,
    shelf_code text,
    last_update timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (store_id, shelf_code) REFERENCES shelf
);
CREATE TABLE rental (
    rental_id serial PRIMARY KEY,
    rental_date timestamptz NOT NULL,
    inventory_id integer NOT NULL REFERENCES inventory,
    customer_id integer NOT NULL REFERENCES customer,
    return_date timestamptz,
    staff_id integer NOT NULL REFERENCES staff,
    last_update timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX idx_unq_rental ON rental (rental_date, inventory_id, customer_id);
CREATE SEQUENCE payment_payment_id_seq;
CREATE TABLE payment (
    payment_id integer NOT NULL DEFAULT nextval('payment_payment_id_seq'),
    customer_id integer NOT NULL REFERENCES customer,
    staff_id integer NOT NULL REFERENCES staff,
    rental_id integer NOT NULL REFERENCES rental,
    amount numeric(5, 2) NOT NULL,
    payment_date timestamptz NOT NULL,
    PRIMARY KEY (payment_date, payment_id)
) PARTITION BY RANGE (payment_date);
CREATE TABLE payment_p2022_01 PARTITION OF payment
    FOR VALUES FROM ('2022-01-01 00:00+00') TO ('2022-02-01 00:00+00');
CREATE TABLE payment_p2022_02 PARTITION OF payment
    FOR VALUES FROM ('2022-02-01 00:00+00') TO ('2022-03-01 00:00+00');
CREATE TABLE payment_default PARTITION OF payment DEFAULT;
CREATE TABLE payment_keyless (
    customer_id integer REFERENCES customer,
    amount numeric(5, 2) NOT NULL,
    payment_date timestamptz NOT NULL
) PARTITION BY RANGE (payment_date);
CREATE TABLE payment_keyless_p2007_01 PARTITION OF payment_keyless
    FOR VALUES FROM ('2007-01-01 00:00+00') TO ('2007-02-01 00:00+00');

CREATE FUNCTION inventory_in_stock(p_inventory_id integer) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM rental WHERE inventory_id = p_inventory_id AND return_date IS NULL);
END$$;
CREATE FUNCTION get_customer_balance(p_customer_id integer) RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(rental_rate), 0) - (
        SELECT coalesce(sum(amount), 0) FROM payment WHERE customer_id = p_customer_id
    ) FROM rental JOIN inventory USING (inventory_id) JOIN film USING (film_id)
    WHERE customer_id = p_customer_id$$;

CREATE TRIGGER film_fulltext_trigger BEFORE INSERT OR UPDATE ON film FOR EACH ROW
    EXECUTE FUNCTION tsvector_update_trigger('fulltext', 'pg_catalog.english', 'title', 'description');
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['actor', 'address', 'category', 'city', 'country', 'customer', 'film',
        'film_actor', 'film_category', 'inventory', 'language', 'rental', 'staff', 'store']
    LOOP
        EXECUTE format('CREATE TRIGGER last_updated BEFORE UPDATE ON %I FOR EACH ROW '
            'EXECUTE FUNCTION last_updated()', name);
    END LOOP;
END$$;

CREATE VIEW actor_info AS
    SELECT actor_id, first_name, last_name, group_concat(DISTINCT category.name || '; ') AS film_info
    FROM actor LEFT JOIN film_actor USING (actor_id) LEFT JOIN film_category USING (film_id)
        LEFT JOIN category USING (category_id)
    GROUP BY actor_id;
CREATE VIEW customer_list AS
    SELECT customer_id AS id, first_name || ' ' || last_name AS name, address, postal_code AS "zip code",
        phone, city, country, CASE WHEN activebool THEN 'active' ELSE '' END AS notes, store_id AS sid
    FROM customer JOIN address USING (address_id) JOIN city USING (city_id) JOIN country USING (country_id);
CREATE VIEW film_list AS
    SELECT film_id AS fid, title, description, category.name AS category, rental_rate AS price, length,
        rating, array_remove(array_agg(DISTINCT actor.last_name), NULL) AS actors
    FROM film LEFT JOIN film_category USING (film_id) LEFT JOIN category USING (category_id)
        LEFT JOIN film_actor USING (film_id) LEFT JOIN actor USING (actor_id)
    GROUP BY film_id, category.name;
CREATE VIEW staff_list AS
    SELECT staff_id AS id, first_name || ' ' || last_name AS name, address, phone, staff.store_id AS sid
    FROM staff JOIN address USING (address_id);
CREATE VIEW sales_by_store AS
    SELECT city || ',' || country AS store, first_name AS manager, sum(amount) AS total_sales
    FROM payment JOIN rental USING (rental_id) JOIN inventory USING (inventory_id)
        JOIN store USING (store_id) JOIN address USING (address_id) JOIN city USING (city_id)
        JOIN country USING (country_id) JOIN staff ON manager_staff_id = staff.staff_id
    GROUP BY city, country, first_name;
CREATE MATERIALIZED VIEW rental_by_category AS
    SELECT category.name AS category, sum(amount) AS total_sales
    FROM payment JOIN rental USING (rental_id) JOIN inventory USING (inventory_id)
        JOIN film_category USING (film_id) JOIN category USING (category_id)
    GROUP BY category.name WITH NO DATA;

INSERT INTO actor (first_name, last_name) VALUES ('VERA', 'LUND'), ('OTTO', 'PIKE'), ('JUN', 'O''HARE');
INSERT INTO category (name) VALUES ('Drama'), ('Sci-Fi');
INSERT INTO country (country) VALUES ('Chile'), ('Réunion');
INSERT INTO city (city, country_id) VALUES ('Arica', 1), ('Saint-Denis', 2);
INSERT INTO address (address, address2, district, city_id, postal_code, phone) VALUES
    ('1 Low Road', NULL, 'North', 1, '1000000', '555-1'), ('2 High Road', '', 'South', 2, NULL, '555-2');
INSERT INTO language (name) VALUES ('English'), ('Créole');
INSERT INTO film (title, description, release_year, language_id, original_language_id, length, rating,
    special_features) VALUES
    ('SLOW RIVER', 'A story of a boat and a dog', 2006, 1, NULL, 86, 'PG-13', '{Trailers,"Deleted Scenes"}'),
    ('GLASS MOON', 'A tale of a robot', 1999, 1, 2, 48, 'NC-17', '{}'),
    ('WINTER BREAD', NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO film_actor (actor_id, film_id) VALUES (1, 1), (1, 2), (2, 1);
INSERT INTO film_category (film_id, category_id) VALUES (1, 1), (2, 2), (2, 1);
BEGIN;
INSERT INTO store (manager_staff_id, address_id) VALUES (1, 1), (2, 2);
INSERT INTO staff (first_name, last_name, address_id, email, store_id, username, picture) VALUES
    ('Ida', 'Moss', 1, 'ida@lend.test', 1, 'ida', '\x89504e470d0a'), ('Ben', 'Cole', 2, NULL, 2, 'ben', NULL);
COMMIT;
INSERT INTO customer (store_id, first_name, last_name, email, address_id, create_date, active) VALUES
    (1, 'NELL', 'REED', 'nell@home.test', 1, '2022-02-14', 1),
    (2, 'SAM', 'ÅBERG', NULL, 2, '2022-02-28', 0);
INSERT INTO shelf VALUES (1, 'A', 1.5), (1, 'b, c', NULL), (2, 'A', 2);
INSERT INTO inventory (film_id, store_id, shelf_code) VALUES (1, 1, 'A'), (1, 2, 'A'), (2, 1, NULL);
INSERT INTO rental (rental_date, inventory_id, customer_id, return_date, staff_id) VALUES
    ('2022-01-24 21:53:30+00', 1, 1, '2022-01-26 22:04:30+00', 1),
    ('2022-02-01 00:00:00.123456+00', 2, 2, NULL, 2), ('2022-03-01 12:00+00', 3, 1, NULL, 1);
INSERT INTO payment (customer_id, staff_id, rental_id, amount, payment_date) VALUES
    (1, 1, 1, 2.99, '2022-01-24 21:40:19.996577+00'), (2, 2, 2, 0.99, '2022-02-10 10:00+00'),
    (1, 1, 3, 5.99, '2022-04-01 09:30:00.5+00');
INSERT INTO payment_keyless VALUES (1, 7.99, '2007-01-05'), (NULL, 0.99, '2007-01-06'), (1, 7.99, '2007-01-05');
REFRESH MATERIALIZED VIEW rental_by_category;
