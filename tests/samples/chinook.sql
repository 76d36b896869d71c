-- A shop for music, in the shape of Chinook: whole-number keys that callers choose.

CREATE TABLE artist (artist_id integer PRIMARY KEY, name varchar(120));
CREATE TABLE album (
    album_id integer PRIMARY KEY,
    title varchar(160) NOT NULL,
    artist_id integer NOT NULL REFERENCES artist
);
CREATE TABLE media_type (media_type_id integer PRIMARY KEY, name varchar(120));
CREATE TABLE genre (genre_id integer PRIMARY KEY, name varchar(120));
CREATE TABLE track (
    track_id integer PRIMARY KEY,
    name varchar(200) NOT NULL,
    album_id integer REFERENCES album,
    media_type_id integer NOT NULL REFERENCES media_type,
    genre_id integer REFERENCES genre,
    composer varchar(220),
    milliseconds integer NOT NULL,
    bytes integer,
    unit_price numeric(10, 2) NOT NULL
);
CREATE TABLE playlist (playlist_id integer PRIMARY KEY, name varchar(120));
CREATE TABLE playlist_track (
    playlist_id integer NOT NULL REFERENCES playlist,
    track_id integer NOT NULL REFERENCES track,
    PRIMARY KEY (playlist_id, track_id)
);
CREATE TABLE employee (
    employee_id integer PRIMARY KEY,
    last_name varchar(20) NOT NULL,
    first_name varchar(20) NOT NULL,
    title varchar(30),
    reports_to integer REFERENCES employee,
    birth_date timestamp,
    hire_date timestamp,
    city varchar(40),
    email varchar(60)
);
CREATE TABLE customer (
    customer_id integer PRIMARY KEY,
    first_name varchar(40) NOT NULL,
    last_name varchar(20) NOT NULL,
    company varchar(80),
    country varchar(40),
    email varchar(60) NOT NULL,
    support_rep_id integer REFERENCES employee
);
CREATE TABLE invoice (
    invoice_id integer PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customer,
    invoice_date timestamp NOT NULL,
    billing_country varchar(40),
    total numeric(10, 2) NOT NULL
);
CREATE TABLE invoice_line (
    invoice_line_id integer PRIMARY KEY,
    invoice_id integer NOT NULL REFERENCES invoice,
    track_id integer NOT NULL REFERENCES track,
    unit_price numeric(10, 2) NOT NULL,
    quantity integer NOT NULL
);
CREATE INDEX album_artist_id_idx ON album (artist_id);
CREATE INDEX track_album_id_idx ON track (album_id);
CREATE INDEX playlist_track_track_id_idx ON playlist_track (track_id);

INSERT INTO artist VALUES (1, 'The Lanterns'), (2, 'Mia & the Tide'), (3, NULL);
INSERT INTO album VALUES (1, 'First light', 1), (2, 'Low water', 2), (3, 'Late light', 1);
INSERT INTO media_type VALUES (1, 'MPEG audio'), (2, 'AAC audio');
INSERT INTO genre VALUES (1, 'Rock'), (2, 'Folk'), (3, 'Drum ''n'' bass');
INSERT INTO track VALUES
    (1, 'Matches', 1, 1, 1, 'L. Wick', 201000, 6600120, 0.99),
    (2, 'Harbour, evening', 2, 2, 2, NULL, 245500, 8012345, 0.99),
    (3, '100% rain', 2, 1, NULL, 'M. Tide', 180250, NULL, 1.99),
    (4, 'Ember', NULL, 1, 1, NULL, 99000, 3100000, 0.99);
INSERT INTO playlist VALUES (1, 'Evenings'), (2, 'Running'), (3, 'Nothing yet');
INSERT INTO playlist_track VALUES (1, 1), (1, 2), (2, 1), (2, 3);
INSERT INTO employee VALUES
    (1, 'Okafor', 'Ada', 'Manager', NULL, '1970-02-03', '2001-05-06 08:00', 'Leeds', 'ada@music.test'),
    (2, 'Brandt', 'Jo', 'Support', 1, '1980-11-12', '2010-01-01', 'Leeds', 'jo@music.test'),
    (3, 'Silva', 'Rui', 'Support', 1, NULL, NULL, 'Porto', NULL);
INSERT INTO customer VALUES
    (1, 'Noor', 'Haddad', NULL, 'Norway', 'noor@home.test', 2),
    (2, 'Tom', 'Wells', 'Wells & Sons', 'Canada', 'tom@wells.test', 3),
    (3, 'Íris', 'Þórsdóttir', NULL, 'Iceland', 'iris@home.test', NULL);
INSERT INTO invoice VALUES
    (1, 1, '2023-01-31', 'Norway', 1.98),
    (2, 2, '2023-02-28 12:30:00.25', 'Canada', 1.99),
    (3, 1, '2024-02-29', NULL, 0.00);
INSERT INTO invoice_line VALUES (1, 1, 1, 0.99, 1), (2, 1, 2, 0.99, 1), (3, 2, 3, 1.99, 1);
