/* SPDX-License-Identifier: Apache-2.0 */
/* A locale whose decimal point is a comma, as a program around the library may have set it. */
#pragma once

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>

/* Lasts as long as it lives. Made by localedef where none is installed; `active` is false where
 * that cannot be done either. */
class comma_locale {
  public:
    comma_locale() {
        active = choose();
        char name[] = "/tmp/carole-locale-XXXXXX";
        if (!active && mkdtemp(name) != nullptr) {
            folder_ = name;
            const std::string make =
                "localedef -i de_DE -f UTF-8 " + folder_ + "/de_DE.UTF-8 >/dev/null 2>&1";
            setenv("LOCPATH", folder_.c_str(), 1);
            active = std::system(make.c_str()) == 0 && choose();
        }
    }
    ~comma_locale() {
        std::setlocale(LC_ALL, "C");
        if (!folder_.empty()) {
            unsetenv("LOCPATH");
            std::filesystem::remove_all(folder_);
        }
    }
    comma_locale(const comma_locale &) = delete;
    comma_locale &operator=(const comma_locale &) = delete;

    bool active = false;

  private:
    static bool choose() {
        return std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr &&
               *std::localeconv()->decimal_point == ',';
    }
    std::string folder_;
};
