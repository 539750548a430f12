/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through jansson. Refuses duplicate keys. (jansson's own memory is not counted: its
 * allocator can only be replaced for the whole process.) */
#include "engine/base/json.h"

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/text_internal.h"

enum { JSON_LIMIT_BYTES = 256 << 20 };

crl_status crl_json_parse(json_t **out, const char *text, size_t bytes, const char *what) {
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        char quoted[sizeof error.text];
        crl_text_quote(quoted, sizeof quoted, error.text);
        return json_error_code(&error) == json_error_out_of_memory
                   ? CRL_FAIL(NOMEM, "%s: no memory for %zu bytes of JSON", what, bytes)
                   : CRL_FAIL(INVALID, "%s:%d:%d: %s", what, error.line, error.column, quoted);
    }
    *out = root;
    return CRL_STATUS_OK;
}

crl_status crl_json_load(json_t **out, const char *path) {
    char *text;
    size_t bytes;
    CRL_TRY(crl_file_read(&text, &bytes, path, JSON_LIMIT_BYTES));
    const crl_status status = crl_json_parse(out, text, bytes, path);
    crl_free(text);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

static const char *kind_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

static crl_status find(const json_t **out, const json_t *object, const char *key,
                       const char *what) {
    if (!object) {
        return CRL_FAIL(INVALID, "%s: is missing, expected an object", what);
    }
    if (!json_is_object(object)) {
        return CRL_FAIL(INVALID, "%s: is %s, expected an object", what, kind_name(object));
    }
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return CRL_FAIL(INVALID, "%s: '%s' is missing", what, key);
    }
    *out = value;
    return CRL_STATUS_OK;
}

static crl_status wrong_kind(const json_t *value, const char *key, const char *what,
                             const char *expected) {
    return CRL_FAIL(INVALID, "%s: '%s' is %s, expected %s", what, key, kind_name(value), expected);
}

crl_status crl_json_get_int(int64_t *out, const json_t *object, const char *key, const char *what) {
    const json_t *value;
    CRL_TRY(find(&value, object, key, what));
    if (!json_is_integer(value)) {
        return wrong_kind(value, key, what, "an integer");
    }
    *out = json_integer_value(value);
    return CRL_STATUS_OK;
}

crl_status crl_json_get_text(const char **out, const json_t *object, const char *key,
                             const char *what) {
    const json_t *value;
    CRL_TRY(find(&value, object, key, what));
    if (!json_is_string(value)) {
        return wrong_kind(value, key, what, "a string");
    }
    *out = json_string_value(value);
    return CRL_STATUS_OK;
}
