/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables of machine descriptions. Knows no machine: the numbers stand in the files. */
#include "engine/run/machine.h"

#include <string.h>

/* A crl_machine as option tables fill it. */
typedef struct values {
    const char *name;
    int64_t nodes, devices_per_node;
    double price_per_hour;
    int64_t memory_bytes;
    double peak_flops_per_s, efficiency, half_flops, memory_bytes_per_s, launch_s, message_s;
    crl_link within, between;
    double forward_overlap, backward_overlap, sum_overlap, gather_overlap;
} values;

#define ROW(type_, name_, value_, low, high, help_, field_)                                        \
    {                                                                                              \
        .name = name_, .value = value_, .help = help_, .type = &type_,                             \
        .offset = offsetof(values, field_), .min = low, .max = high                                \
    }
#define NUMBER(name, value, help, field) ROW(crl_option_double, name, value, 0, 1e30, help, field)
#define SHARE(name, help, field)         ROW(crl_option_double, name, "0", 0, 1, help, field)

static const crl_option machine_table[] = {
    ROW(crl_option_text, "name", NULL, 0, 0, "for messages and tables", name),
    ROW(crl_option_int, "nodes", "1", 1, 1000000, "equal nodes", nodes),
    ROW(crl_option_int, "devices_per_node", "1", 1, 1000000, "equal devices of a node",
        devices_per_node),
    NUMBER("price_per_hour", "0", "of a device, any currency; 0: not counted", price_per_hour),
    {0}};

static const crl_option compute_table[] = {
    ROW(crl_option_bytes, "memory", NULL, 1, 1e18, "of a device", memory_bytes),
    ROW(crl_option_double, "peak_flops_per_s", NULL, 1, 1e30,
        "of a device, in the type that is trained with", peak_flops_per_s),
    ROW(crl_option_double, "efficiency", "1", 1e-6, 1,
        "share of the peak that a very large product reaches", efficiency),
    NUMBER("half_flops", "0", "a product of so many flops reaches half of that", half_flops),
    ROW(crl_option_double, "memory_bytes_per_s", NULL, 1, 1e30,
        "of a device's memory, as element-wise kernels reach it", memory_bytes_per_s),
    NUMBER("launch_s", "0", "seconds any kernel takes at least", launch_s),
    NUMBER("message_s", "0", "seconds of its own that a device takes to start or end a message",
           message_s),
    {0}};

#define LINK(table, field)                                                                         \
    static const crl_option table[] = {                                                            \
        NUMBER("latency_s", "0", "seconds until a message of no bytes is there", field.latency_s), \
        NUMBER("bytes_per_s", "0", "of one device, one direction; 0: only the latency counts",     \
               field.bytes_per_s),                                                                 \
        {0}}
LINK(within_table, within);
LINK(between_table, between);

static const crl_option overlap_table[] = {
    SHARE("forward", "of a tensor group's sums in forward", forward_overlap),
    SHARE("backward", "of a tensor group's sums in backward", backward_overlap),
    SHARE("sums", "of the last backward that sums of gradients can use", sum_overlap),
    SHARE("gather", "of a step's first forward that the second half of these sums can use",
          gather_overlap),
    {0}};

enum { SECTIONS = 5 };

static void list_sections(crl_config_section out[SECTIONS + 1], values *target) {
    const crl_config_section section[SECTIONS + 1] = {
        {.name = "machine", .help = "the cluster", .table = machine_table, .options = target},
        {.name = "compute", .help = "one device", .table = compute_table, .options = target},
        {.name = "within", .help = "links inside a node", .table = within_table, .options = target},
        {.name = "between",
         .help = "links between nodes",
         .table = between_table,
         .options = target},
        {.name = "overlap",
         .help = "shares of communication that computing hides",
         .table = overlap_table,
         .options = target},
        {0}};
    memcpy(out, section, sizeof section);
}

static crl_machine machine_of(const values *v) {
    return (crl_machine){.name = v->name,
                         .nodes = (int)v->nodes,
                         .devices_per_node = (int)v->devices_per_node,
                         .memory_bytes = (double)v->memory_bytes,
                         .peak_flops_per_s = v->peak_flops_per_s,
                         .efficiency = v->efficiency,
                         .half_flops = v->half_flops,
                         .memory_bytes_per_s = v->memory_bytes_per_s,
                         .launch_s = v->launch_s,
                         .within = v->within,
                         .between = v->between,
                         .price_per_hour = v->price_per_hour,
                         .message_s = v->message_s,
                         .forward_overlap = v->forward_overlap,
                         .backward_overlap = v->backward_overlap,
                         .sum_overlap = v->sum_overlap,
                         .gather_overlap = v->gather_overlap};
}

static crl_status finish(crl_machine_file *out, crl_config_source *source, const values *read) {
    const crl_machine machine = machine_of(read);
    const crl_status status = crl_machine_check(&machine);
    if (status != CRL_STATUS_OK) {
        crl_config_fini(source);
        return status;
    }
    *out = (crl_machine_file){.machine = machine, .source = *source};
    return CRL_STATUS_OK;
}

crl_status crl_machine_file_read(crl_machine_file *out, const char *path, const char *const *sets,
                                 int set_count) {
    values read = {0};
    crl_config_section section[SECTIONS + 1];
    crl_config_source source = {0};
    list_sections(section, &read);
    const crl_status status = crl_config_load(&source, section, path, sets, set_count);
    if (status != CRL_STATUS_OK) {
        crl_config_fini(&source);
        return status;
    }
    return finish(out, &source, &read);
}

crl_status crl_machine_file_parse(crl_machine_file *out, const char *name, const char *text,
                                  size_t bytes) {
    values read = {0};
    crl_config_section section[SECTIONS + 1];
    crl_config_source source = {0};
    list_sections(section, &read);
    const crl_status status = crl_config_parse(&source, section, name, text, bytes, NULL, 0);
    if (status != CRL_STATUS_OK) {
        crl_config_fini(&source);
        return status;
    }
    return finish(out, &source, &read);
}

void crl_machine_file_fini(crl_machine_file *file) {
    crl_config_fini(&file->source);
}

static values values_of(const crl_machine *m) {
    return (values){.name = m->name ? m->name : "machine",
                    .nodes = m->nodes,
                    .devices_per_node = m->devices_per_node,
                    .price_per_hour = m->price_per_hour,
                    .memory_bytes = (int64_t)m->memory_bytes,
                    .peak_flops_per_s = m->peak_flops_per_s,
                    .efficiency = m->efficiency,
                    .half_flops = m->half_flops,
                    .memory_bytes_per_s = m->memory_bytes_per_s,
                    .launch_s = m->launch_s,
                    .message_s = m->message_s,
                    .within = m->within,
                    .between = m->between,
                    .forward_overlap = m->forward_overlap,
                    .backward_overlap = m->backward_overlap,
                    .sum_overlap = m->sum_overlap,
                    .gather_overlap = m->gather_overlap};
}

void crl_machine_file_write(const crl_machine *machine, FILE *out) {
    values shown = values_of(machine);
    crl_config_section section[SECTIONS + 1];
    list_sections(section, &shown);
    for (int s = 0; section[s].name; s++) {
        fprintf(out, "%s:\n", section[s].name);
        for (const crl_option *row = section[s].table; row->name; row++) {
            char text[512];
            row->type->show(row, (const char *)section[s].options + row->offset, text, sizeof text);
            fprintf(out, "  %s: %s\n", row->name, text);
        }
    }
}

void crl_machine_file_reference(FILE *out) {
    values unused = {0};
    crl_config_section section[SECTIONS + 1];
    list_sections(section, &unused);
    crl_config_reference(section, out);
}
