-- A write that is one statement tries the rules of permissions on what it has written.

CREATE FUNCTION system_require(held boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF held THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'a rule of a permission does not hold' USING ERRCODE = 'CM403';
END
$$;

COMMENT ON FUNCTION system_require(boolean) IS 'Gives up the whole statement unless a rule holds for what it has written';
