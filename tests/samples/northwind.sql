-- A wholesaler, in the shape of Northwind: smallint, char and varchar keys, real amounts, pictures,
-- and views whose names hold spaces.

CREATE TABLE categories (
    category_id smallint PRIMARY KEY,
    category_name varchar(15) NOT NULL,
    description text,
    picture bytea
);
CREATE TABLE suppliers (
    supplier_id smallint PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    contact_name varchar(30),
    city varchar(15),
    homepage text
);
CREATE TABLE products (
    product_id smallint PRIMARY KEY,
    product_name varchar(40) NOT NULL,
    supplier_id smallint REFERENCES suppliers,
    category_id smallint REFERENCES categories,
    quantity_per_unit varchar(20),
    unit_price real,
    units_in_stock smallint,
    discontinued integer NOT NULL
);
CREATE TABLE customers (
    customer_id varchar(5) PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    contact_name varchar(30),
    city varchar(15),
    country varchar(15)
);
CREATE TABLE customer_demographics (
    customer_type_id char(10) PRIMARY KEY,
    customer_desc text
);
CREATE TABLE customer_customer_demo (
    customer_id varchar(5) NOT NULL REFERENCES customers,
    customer_type_id char(10) NOT NULL REFERENCES customer_demographics,
    PRIMARY KEY (customer_id, customer_type_id)
);
CREATE TABLE employees (
    employee_id smallint PRIMARY KEY,
    last_name varchar(20) NOT NULL,
    first_name varchar(10) NOT NULL,
    birth_date date,
    photo bytea,
    notes text,
    reports_to smallint REFERENCES employees,
    photo_path varchar(255)
);
CREATE TABLE region (region_id smallint PRIMARY KEY, region_description char(50) NOT NULL);
CREATE TABLE territories (
    territory_id varchar(20) PRIMARY KEY,
    territory_description char(50) NOT NULL,
    region_id smallint NOT NULL REFERENCES region
);
CREATE TABLE employee_territories (
    employee_id smallint NOT NULL REFERENCES employees,
    territory_id varchar(20) NOT NULL REFERENCES territories,
    PRIMARY KEY (employee_id, territory_id)
);
CREATE TABLE shippers (
    shipper_id smallint PRIMARY KEY,
    company_name varchar(40) NOT NULL,
    phone varchar(24)
);
CREATE TABLE orders (
    order_id smallint PRIMARY KEY,
    customer_id varchar(5) REFERENCES customers,
    employee_id smallint REFERENCES employees,
    order_date date,
    shipped_date date,
    ship_via smallint REFERENCES shippers,
    freight real,
    ship_city varchar(15)
);
CREATE TABLE order_details (
    order_id smallint NOT NULL REFERENCES orders,
    product_id smallint NOT NULL REFERENCES products,
    unit_price real NOT NULL,
    quantity smallint NOT NULL,
    discount real NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
CREATE TABLE us_states (
    state_id smallint PRIMARY KEY,
    state_name varchar(100),
    state_abbr varchar(2),
    state_region varchar(50)
);

CREATE VIEW "Order Details Extended" AS
    SELECT order_id, product_id, product_name, order_details.unit_price, quantity, discount,
        (order_details.unit_price * quantity * (1 - discount))::numeric(12, 2) AS extended_price
    FROM order_details JOIN products USING (product_id);
CREATE VIEW "Order Subtotals" AS
    SELECT order_id, sum(unit_price * quantity * (1 - discount)) AS subtotal
    FROM order_details GROUP BY order_id;
CREATE VIEW "Invoices" AS
    SELECT orders.*, customers.company_name AS customer_name, shippers.company_name AS shipper_name,
        employees.first_name || ' ' || employees.last_name AS salesperson, subtotal
    FROM orders JOIN customers USING (customer_id) JOIN employees USING (employee_id)
        LEFT JOIN shippers ON shipper_id = ship_via LEFT JOIN "Order Subtotals" USING (order_id);
CREATE VIEW "Customer and Suppliers by City" AS
    SELECT city, company_name, contact_name, 'Customers' AS relationship FROM customers
    UNION SELECT city, company_name, contact_name, 'Suppliers' FROM suppliers;
CREATE VIEW "Products Above Average Price" AS
    SELECT product_name, unit_price FROM products
    WHERE unit_price > (SELECT avg(unit_price) FROM products);
CREATE VIEW "Summary of Sales by Quarter" AS
    SELECT extract(year FROM shipped_date) AS "Year", extract(quarter FROM shipped_date) AS "Quarter",
        count(*) AS orders, sum(subtotal) AS total
    FROM orders JOIN "Order Subtotals" USING (order_id)
    WHERE shipped_date IS NOT NULL GROUP BY 1, 2;
CREATE VIEW "Current Product List" AS
    SELECT product_id, product_name FROM products WHERE discontinued = 0;

INSERT INTO categories VALUES
    (1, 'Teas', 'Leaves and roots', '\x474946'), (2, 'Jams', NULL, '\x'), (3, 'Oils', 'Pressed', NULL);
INSERT INTO suppliers VALUES
    (1, 'Leaf & Co', 'May Ling', 'Kyoto', '#leaf.test#'), (2, 'Orchard', NULL, 'Ghent', NULL);
INSERT INTO products VALUES
    (1, 'Green tea', 1, 1, '20 bags', 4.5, 39, 0), (2, 'Plum jam', 2, 2, '6 jars', 19.1, 0, 1),
    (3, 'Olive oil', 2, 3, NULL, 21.35, 12, 0), (4, 'Sampler', NULL, NULL, '1 box', NULL, NULL, 0);
INSERT INTO customers VALUES
    ('ABCDE', 'Abel Foods', 'Ana Abel', 'Ghent', 'Belgium'), ('K%,/Z', 'Kiosk', NULL, 'Oslo', 'Norway'),
    ('ZED', 'Zed''s', 'Zoë', NULL, NULL);
INSERT INTO customer_demographics VALUES ('retail', 'Sells to people'), ('a, b', NULL), ('wholesale ', 'Big');
INSERT INTO customer_customer_demo VALUES ('ABCDE', 'retail'), ('ABCDE', 'wholesale'), ('K%,/Z', 'a, b');
INSERT INTO employees VALUES
    (1, 'Duarte', 'Inês', '1968-12-08', '\x89504e47', 'Speaks French', NULL, 'https://staff.test/1.png'),
    (2, 'Kim', 'Bo', '1972-02-19', NULL, NULL, 1, NULL), (3, 'Berg', 'Liv', NULL, NULL, 'New', 1, NULL);
INSERT INTO region VALUES (1, 'North'), (2, 'South');
INSERT INTO territories VALUES ('01581', 'Hills', 1), ('01730', 'Lakes', 1), ('2,5%', 'Coast', 2);
INSERT INTO employee_territories VALUES (1, '01581'), (2, '01581'), (2, '2,5%');
INSERT INTO shippers VALUES (1, 'Quick Ship', '(503) 555-0100'), (2, 'Slow Boat', NULL);
INSERT INTO orders VALUES
    (1, 'ABCDE', 1, '1996-07-04', '1996-07-16', 1, 32.38, 'Ghent'),
    (2, 'K%,/Z', 2, '1996-12-31', '1997-01-08', 2, 0.1, 'Oslo'),
    (3, 'ABCDE', 1, '1997-05-01', NULL, NULL, NULL, NULL), (4, NULL, NULL, NULL, NULL, 1, 7, NULL);
INSERT INTO order_details VALUES
    (1, 1, 4.5, 12, 0), (1, 2, 19.1, 10, 0.15), (2, 3, 21.35, 1, 0.05), (3, 1, 4.5, 3, 0);
INSERT INTO us_states VALUES (1, 'Alabama', 'AL', 'south'), (2, 'Alaska', 'AK', 'north');
