/* SPDX-License-Identifier: Apache-2.0 */
/* Looking plug-ins up by name. Refuses to own or register anything: tables are constants. */
#include "engine/base/registry.h"

#include "engine/base/text_internal.h"

#include <stdio.h>
#include <string.h>

crl_status crl_registry_find(const void **out, const void *const *registry, const char *kind,
                             const char *name) {
    const char *nearest = NULL;
    int least = -1;
    for (int i = 0; registry[i]; ++i) {
        const crl_plugin *plugin = registry[i];
        if (strcmp(plugin->name, name) == 0) {
            *out = plugin;
            return CRL_STATUS_OK;
        }
        const int distance = crl_name_distance(name, plugin->name);
        if (distance >= 0 && (least < 0 || distance < least)) {
            nearest = plugin->name;
            least = distance;
        }
    }
    char quoted[CRL_QUOTE_BYTES], choices[2048];
    crl_text_quote(quoted, sizeof quoted, name);
    crl_registry_names(registry, choices, sizeof choices);
    return nearest ? CRL_FAIL(NOT_FOUND, "unknown %s '%s', did you mean '%s'? (choices: %s)", kind,
                              quoted, nearest, choices)
                   : CRL_FAIL(NOT_FOUND, "unknown %s '%s' (choices: %s)", kind, quoted, choices);
}

void crl_registry_names(const void *const *registry, char *text, size_t text_bytes) {
    size_t used = 0;
    if (text_bytes > 0) {
        text[0] = '\0';
    }
    for (int i = 0; registry[i] && used < text_bytes; ++i) {
        const crl_plugin *plugin = registry[i];
        used +=
            (size_t)snprintf(text + used, text_bytes - used, "%s%s", i ? ", " : "", plugin->name);
    }
}
