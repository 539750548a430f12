// SPDX-License-Identifier: Apache-2.0
#include "engine/base/yaml.h"

#include <gtest/gtest.h>

#include <string>

namespace {

struct Tree {
    explicit Tree(const std::string &text)
        : status(crl_yaml_parse(&yaml, "f", text.data(), text.size())) {}
    ~Tree() { crl_yaml_fini(&yaml); }
    crl_yaml yaml = {};
    crl_status status;
};

std::string Refused(const std::string &text) {
    const Tree tree(text);
    EXPECT_EQ(tree.status, CRL_STATUS_INVALID) << text;
    return tree.status ? crl_error_message() : "accepted";
}

TEST(BaseYaml, KeepsOrderKindsAndPlaces) {
    const Tree tree("a: 1\nlist:\n  - x\n  - {k: \"2\"}\n");
    ASSERT_EQ(tree.status, CRL_STATUS_OK);
    const crl_yaml_node *root = tree.yaml.root;
    ASSERT_EQ(root->kind, CRL_YAML_MAP);
    EXPECT_EQ(root->children, 2);
    EXPECT_STREQ(crl_yaml_member(root, "a")->text, "1");
    const crl_yaml_node *list = crl_yaml_member(root, "list");
    ASSERT_EQ(list->kind, CRL_YAML_LIST);
    ASSERT_EQ(list->children, 2);
    EXPECT_STREQ(list->child->text, "x");
    EXPECT_FALSE(list->child->quoted);
    const crl_yaml_node *k = crl_yaml_member(list->child->next, "k");
    EXPECT_TRUE(k->quoted);
    char at[CRL_YAML_PLACE_BYTES];
    EXPECT_STREQ(crl_yaml_where(&tree.yaml, k, at), "f:4:9");
    EXPECT_STREQ(crl_yaml_where_key(&tree.yaml, k, at), "f:4:6");
    EXPECT_STREQ(crl_yaml_where(&tree.yaml, nullptr, at), "f");
    EXPECT_EQ(crl_yaml_member(root, "b"), nullptr);
}

TEST(BaseYaml, ReadsJson) {
    const Tree tree("{\"a\": [1, {\"b\": null}], \"c\": \"x\\ny\"}");
    ASSERT_EQ(tree.status, CRL_STATUS_OK);
    EXPECT_STREQ(crl_yaml_member(tree.yaml.root, "c")->text, "x\ny");
}

TEST(BaseYaml, SaysWhereItStumbled) {
    EXPECT_EQ(Refused("a: 1\nb: 2\na: 3\n"), "f:3:1: 'a' was given on line 1 already");
    EXPECT_EQ(Refused("a: &x 1\n"), "f:1:4: an anchor is not accepted");
    EXPECT_EQ(Refused("a: !!int 1\n"), "f:1:4: a tag is not accepted");
    EXPECT_EQ(Refused("a: 1\nb: *x\n"), "f:2:4: an alias is not accepted");
    EXPECT_EQ(Refused("a: 1\n---\nb: 1\n"), "f:2:1: a second document is not accepted");
    EXPECT_EQ(Refused("[a]: 1\n"), "f:1:1: a key that is no text is not accepted");
    EXPECT_EQ(Refused(""), "f: is empty");
    EXPECT_EQ(Refused("a: [1, 2\nb: 3\n").rfind("f:2:", 0), 0u);
    EXPECT_EQ(Refused("a: \"\\0\"\n"), "f:1:4: text has a zero character");
    EXPECT_EQ(Refused("a: \xff\n").rfind("f: byte 4: ", 0), 0u);
}

TEST(BaseYaml, RefusesWhatIsTooDeepOrTooWide) {
    EXPECT_EQ(Refused(std::string(40, '[') + std::string(40, ']')),
              "f:1:33: is nested deeper than 32 levels");
    const Tree deep(std::string(32, '[') + std::string(32, ']'));
    EXPECT_EQ(deep.status, CRL_STATUS_OK);
    std::string wide;
    for (int i = 0; i <= 1000; i++) {
        wide += "k" + std::to_string(i) + ": 1\n";
    }
    EXPECT_EQ(Refused(wide), "f:1001:1: is one of more than 1000 keys of a mapping");
}

TEST(BaseYaml, MissingFileIsNotFound) {
    crl_yaml yaml;
    EXPECT_EQ(crl_yaml_load(&yaml, "/nonexistent.yaml"), CRL_STATUS_NOT_FOUND);
    crl_yaml_fini(&yaml);
}

} // namespace
