//! Tolerations, and the rule by which one covers another.

use serde::{Deserialize, Serialize};

use super::json::Text;

/// A toleration of a Pod or a pool. An empty text means the same as an absent one, as in Kubernetes. Operators and effects
/// that are unknown here stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Toleration<'a> {
    /// The taint's key; empty with `Exists` means every taint.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub key: Text<'a>,
    /// `Exists`, `Equal`, `Lt` or `Gt`; empty means `Equal`.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub operator: Text<'a>,
    /// The taint's value for `Equal`, or the number that the taint's value is compared with.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub value: Text<'a>,
    /// The taint's effect; empty means every effect.
    #[serde(skip_serializing_if = "Text::is_empty")]
    pub effect: Text<'a>,
    /// Seconds for which a `NoExecute` taint is tolerated; absent means without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration<'_> {
    /// Returns whether this toleration covers every taint that `other` tolerates, for at least as long: the scheduler's
    /// `ToleratesTaint` (k8s.io/api core/v1 `toleration.go`), for all taints at once. `Lt` and `Gt` cover nothing, as
    /// they may be switched off in the scheduler.
    pub fn covers(&self, other: &Toleration<'_>) -> bool {
        let has_effect = self.effect.is_empty() || self.effect == other.effect;
        let is_long_enough = match (self.toleration_seconds, other.toleration_seconds) {
            (None, _) => true,
            (Some(seconds), Some(others)) => seconds >= others,
            (Some(_), None) => false,
        };
        if !has_effect || !is_long_enough {
            return false;
        }
        match self.operator() {
            "Exists" => self.key.is_empty() || self.key == other.key,
            "Equal" if self.key.is_empty() || other.operator() != "Equal" => false,
            "Equal" => self.key == other.key && self.value == other.value,
            _ => false,
        }
    }

    /// Returns whether a Pod with this toleration can be scheduled despite the taint, for any number of seconds. `Lt` and
    /// `Gt` count, as an API server accepts Pods with them only if they are switched on.
    pub fn tolerates(&self, key: &str, value: &str, effect: &str) -> bool {
        if matches!(self.operator(), "Lt" | "Gt") {
            let has_effect = self.effect.is_empty() || self.effect == *effect;
            return has_effect && self.key == *key && self.is_met_by(value);
        }
        self.covers(&Toleration {
            key: key.into(),
            operator: "Equal".into(),
            value: value.into(),
            effect: effect.into(),
            toleration_seconds: self.toleration_seconds,
        })
    }

    /// Returns whether both tolerations mean the same. Managed tolerations are recognised by this rule.
    pub fn same(&self, other: &Toleration<'_>) -> bool {
        self.covers(other) && other.covers(self)
    }

    /// Returns whether a taint's value is less (`Lt`) or greater (`Gt`) than the value of this toleration.
    fn is_met_by(&self, value: &str) -> bool {
        let Some(value) = number(value) else {
            return false;
        };
        let Some(limit) = number(self.value.as_str()) else {
            return false;
        };
        match self.operator() {
            "Lt" => value < limit,
            "Gt" => value > limit,
            _ => false,
        }
    }

    fn operator(&self) -> &str {
        if self.operator.is_empty() {
            "Equal"
        } else {
            self.operator.as_str()
        }
    }
}

/// Reads a number as the scheduler does: without a plus sign or leading zeros.
fn number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    if number.to_string() != text {
        return None;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(json: &str) -> Toleration<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn coverage_is_that_of_the_scheduler() {
        let pool = r#"{"key":"a/b","operator":"Exists","effect":"NoSchedule"}"#;
        let equal = r#"{"key":"arch","value":"arm64","effect":"NoSchedule"}"#;
        let brief =
            r#"{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}"#;
        let any_effect = r#"{"key":"a/b","operator":"Exists"}"#;
        for (mine, other, expected) in [
            (pool, pool, true),
            (r#"{"operator":"Exists"}"#, pool, true),
            (
                r#"{"key":"","operator":"Exists","effect":null}"#,
                pool,
                true,
            ),
            (r#"{"operator":"Exists","effect":"NoSchedule"}"#, pool, true),
            (r#"{"operator":"Exists","effect":"NoExecute"}"#, pool, false),
            (any_effect, pool, true),
            (pool, any_effect, false),
            (
                r#"{"key":"a/b","operator":"Exists","effect":"NoExecute"}"#,
                pool,
                false,
            ),
            (
                r#"{"key":"a/b","operator":"Equal","value":"x","effect":"NoSchedule"}"#,
                pool,
                false,
            ),
            (r#"{"key":"a/b","effect":"NoSchedule"}"#, pool, false),
            (r#"{"key":"other","operator":"Exists"}"#, pool, false),
            (
                r#"{"key":"a/b","operator":"Lt","value":"5","effect":"NoSchedule"}"#,
                pool,
                false,
            ),
            (r#"{"value":"","effect":"NoSchedule"}"#, pool, false),
            (equal, equal, true),
            (
                r#"{"key":"arch","operator":"Equal","value":"arm64"}"#,
                equal,
                true,
            ),
            (r#"{"key":"arch","operator":"Exists"}"#, equal, true),
            (
                r#"{"key":"arch","value":"amd64","effect":"NoSchedule"}"#,
                equal,
                false,
            ),
            (r#"{"key":"k","operator":"Exists"}"#, brief, true),
            (
                r#"{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}"#,
                brief,
                true,
            ),
            (
                r#"{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":10}"#,
                brief,
                false,
            ),
            (
                brief,
                r#"{"key":"k","operator":"Exists","effect":"NoExecute"}"#,
                false,
            ),
        ] {
            assert_eq!(t(mine).covers(&t(other)), expected, "{mine} over {other}");
        }
    }

    #[test]
    fn taints_are_tolerated_as_by_the_scheduler() {
        let taint = ("arch", "arm64", "NoExecute");
        for (toleration, expected) in [
            (
                r#"{"key":"arch","value":"arm64","effect":"NoExecute"}"#,
                true,
            ),
            (
                r#"{"key":"arch","value":"arm64","effect":"NoExecute","tolerationSeconds":1}"#,
                true,
            ),
            (r#"{"key":"arch","operator":"Exists"}"#, true),
            (r#"{"operator":"Exists"}"#, true),
            (r#"{"key":"arch","value":"amd64"}"#, false),
            (
                r#"{"key":"arch","operator":"Exists","effect":"NoSchedule"}"#,
                false,
            ),
            (r#"{"key":"team","operator":"Exists"}"#, false),
            (r#"{"key":"arch","operator":"Gt","value":"arm64"}"#, false),
        ] {
            assert_eq!(
                t(toleration).tolerates(taint.0, taint.1, taint.2),
                expected,
                "{toleration}"
            );
        }
    }

    #[test]
    fn tolerates_taints_as_upstream_says() {
        #[derive(Deserialize)]
        struct Case {
            toleration: serde_json::Value,
            taint: Taint,
            tolerates: bool,
        }
        #[derive(Deserialize)]
        struct Taint {
            key: String,
            #[serde(default)]
            value: String,
            effect: String,
        }
        let answers = conformance::cases("tolerations").into_iter().map(|case| {
            let Case {
                toleration,
                taint: Taint { key, value, effect },
                tolerates,
            } = case;
            let decoded = Toleration::deserialize(&toleration).unwrap();
            let result = decoded.tolerates(&key, &value, &effect);
            let name = format!("{toleration} {key}={value}:{effect}");
            (name, result, tolerates)
        });
        conformance::assert_agreement(answers);
    }

    #[test]
    fn equal_toleration_is_recognised_in_another_form() {
        let managed =
            t(r#"{"key":"arch","operator":"Equal","value":"arm64","effect":"NoSchedule"}"#);
        for (other, expected) in [
            (
                r#"{"key":"arch","value":"arm64","effect":"NoSchedule","future":1}"#,
                true,
            ),
            (r#"{"key":"arch","value":"arm64"}"#, false),
            (
                r#"{"key":"arch","operator":"Exists","effect":"NoSchedule"}"#,
                false,
            ),
        ] {
            assert_eq!(managed.same(&t(other)), expected, "{other}");
        }
    }
}
